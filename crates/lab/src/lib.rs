//! Experiments with models of executing requests: one mix of work through each model, beside the optimum that theory allows.
