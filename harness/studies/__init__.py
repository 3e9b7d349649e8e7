"""The studies that come with the package, each a TOML file."""
