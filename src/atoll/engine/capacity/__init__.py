"""How much may run here, what is kept warm, and who gives memory up."""
