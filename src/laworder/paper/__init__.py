"""The paper's study: tables and figures as small specs, the runs that they need, and what came out beside the paper."""
