"""What a page costs, and that it asks nobody for anything."""
