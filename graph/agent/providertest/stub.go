package providertest

func anthropicCases() []*Case { return nil }
func providerCases() []*Case  { return nil }
func timeoutCases() []*Case   { return nil }
func parallelCases() []*Case  { return nil }
func lenientCases() []*Case   { return nil }
func errorCases() []*Case     { return nil }
func textCases() []*Case      { return nil }
