"""Everything Hindsight needs, running on one machine without Docker: OpenSearch, Redis, the gateway, the scheduler."""
