"""Further estimators, registered as anyone's would be: entry points of group `creditbench.estimators`.

They use the same interface as a package from outside. Nothing in the rest of the code knows them by name.
"""
