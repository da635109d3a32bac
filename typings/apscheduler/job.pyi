class Job:
    id: str
