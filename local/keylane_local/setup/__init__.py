"""What the stack needs beside Python's packages: programs of the system, and jars that Ivy downloads."""
