"""The ids that librbd makes up for images."""
import re

# The number of the client in hexadecimal digits, then 32 random bits without leading zeros: one id in sixteen is a digit
# shorter than most, one in 256 two, and now and then one has no letter in it.
IMAGE_ID = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,16}\b|\b\d{10,16}\b")


def without_ids(text):
    return IMAGE_ID.sub("ID", text)
