module kavka.compat/results

go 1.21
