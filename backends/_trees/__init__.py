"""scikit-learn, LightGBM and XGBoost: each library runs the file that it wrote itself."""
