package config

// Serde is checkpointer.serde: what a worker may load from stored checkpoints. The lists contain
// module and names, outermost first.
type Serde struct {
	// AllowedJSONModules and AllowedMsgpackModules are passed to the worker's serializer; nil for
	// its default.
	AllowedJSONModules, AllowedMsgpackModules *Modules
	// PickleFallback lets the worker store values as pickle that no other form can hold.
	PickleFallback bool
}

// Modules is a list of importable names, or all.
type Modules struct {
	All  bool
	List [][]string
}
