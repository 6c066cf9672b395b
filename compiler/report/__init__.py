"""A plan as one page: where everything is drawn. The templates in templates/report only print it."""
