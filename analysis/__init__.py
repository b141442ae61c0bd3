"""What a set of runs shows: run folders -> tidy frames (`load`) -> tables (`tables`) and figures (`figures`).

Everything here is a pure function of the files of finished and unfinished runs; nothing trains, nothing imports torch.
"""
