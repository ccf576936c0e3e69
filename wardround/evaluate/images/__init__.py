"""How well images are segmented: figures of single images, and means over them."""
