"""What learns: the embedding of rows, and fits of P that run while learning goes on."""
