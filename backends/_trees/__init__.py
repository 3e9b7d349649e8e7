"""scikit-learn, LightGBM and XGBoost: each library runs the file that it wrote itself.

There is no `account`, since no library tells what it runs node by node, and no `quantize`: comparisons have no scales.
"""
