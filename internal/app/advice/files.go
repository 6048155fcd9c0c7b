package advice

import (
	"fmt"
	"slices"

	"understudy/internal/config"
	"understudy/internal/filelimit"
)

// Files explains that too many files are open; nil if err is about something else.
func Files(err error) *Problem {
	if why, fix := filelimit.Exhausted(err); why != "" {
		return &Problem{"too many open files: " + why, fix, err}
	}
	return nil
}

// FileLimit explains that the limit on open files is too low for a server with this configuration; nil when it is not.
func FileLimit(cfg *config.Config) *Problem {
	workers := 0
	if slices.ContainsFunc(cfg.Graphs, config.Graph.IsPython) {
		workers = cfg.Workers.Processes
	}
	return tooFewFiles(filelimit.Limit(), filelimit.Needed(workers))
}

// tooFewFiles compares a limit, of which 0 is none, with what is needed.
func tooFewFiles(limit, needed uint64) *Problem {
	if limit == 0 || limit >= needed {
		return nil
	}
	return &Problem{fmt.Sprintf("the limit on open files is too low: it is %d, and the server needs %d and one more for each client", limit, needed), filelimit.Fix, nil}
}
