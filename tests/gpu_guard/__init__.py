"""What a GPU would be given to do, checked on machines without one."""
