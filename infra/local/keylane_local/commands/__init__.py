"""The commands of `keylane` beyond starting and stopping the stack."""
