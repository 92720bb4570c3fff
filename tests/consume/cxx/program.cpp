// The same program as C++: the headers are clean in both languages.
#include "../program.c"
