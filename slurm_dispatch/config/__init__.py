"""The site's configuration."""
