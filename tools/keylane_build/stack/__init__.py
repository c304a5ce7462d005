"""What CloudFormation would make of the templates with given parameters, without an account."""
