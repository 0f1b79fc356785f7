"""What is done about each outcome: rules as users write them, and the plan that they make. No I/O."""
