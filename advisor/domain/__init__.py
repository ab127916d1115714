"""What things are: frozen records with units in their names, no input or output."""
