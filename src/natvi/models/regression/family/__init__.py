"""What a model needs to know about its family beside the functions of a row: numbers shared, responses taken."""
