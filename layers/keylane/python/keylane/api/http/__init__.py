"""What every resource of the API needs: requests, responses, parameters, problems."""
