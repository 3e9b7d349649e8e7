"""Turn a user's own model, a factory in Python or a transformers config, into a `Model`; find out what an ONNX file's
inputs are.

In: `file.py:function`, `package.module:function` or a `config.json`. Out: `Model`, and `Called` once it has run.
`factory`, `source` and `hfconfig` run none of the user's code when they read it; `called` does, and alone needs torch.
May use `models.base`, `models.drawing`, `models.seeding`, `exported` and the root.
"""
