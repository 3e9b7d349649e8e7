"""Kinds of data that people hold beside a model: texts, images by class, a detector's data set, a table.

Plug-ins, one a file: each makes rows, which every command takes, of one option of `shootout run`. `reader` says what
one is, and finds the one that takes what a user gives.
"""

TABLE: dict[str, str] = {
    "boxes": "shootout.models.readers.boxes:Boxes",
    "images": "shootout.models.readers.images:Images",
    "table": "shootout.models.readers.table:TableReader",
    "texts": "shootout.models.readers.texts:Texts",
}
"""The readers that ship, each where its class is."""
