package sandbox

var (
	Filters       = filters
	LandlockLevel = landlockLevel
)
