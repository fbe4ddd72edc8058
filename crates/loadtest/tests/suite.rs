//! Every test of the load tester, in one program.
