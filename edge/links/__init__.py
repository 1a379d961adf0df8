"""What the node has with other nodes. Local work never needs it."""
