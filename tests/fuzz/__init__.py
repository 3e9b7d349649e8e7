"""Everything that is read from outside, fed with what nobody would write: only the project's own errors may come out.

`python -m tests.fuzz --inputs 100000 --seed 0` tries that many, `test_fuzz.py` a share of them, and each input that
once broke something (`corpus/`).
"""
