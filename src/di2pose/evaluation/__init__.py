"""Named protocols on predictors and prediction files, reports, and paired comparison."""
