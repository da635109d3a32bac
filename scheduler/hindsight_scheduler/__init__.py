"""The scheduler of Hindsight: calls the forgetting sweeps on time, once across replicas."""
