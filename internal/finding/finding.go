// Package finding is what checks of a server and its surroundings report.
package finding

// Verdict says how a check ended.
type Verdict string

// Verdicts. Only a problem keeps the server from working.
const (
	Fine    Verdict = "ok"
	Warning Verdict = "warning"
	Problem Verdict = "problem"
)

// Finding is what one check found.
type Finding struct {
	Check   string   `json:"check"` // config, environment, data, database, clock, redis, port, python, graph, auth, http, store, encryption, components, deerflow, model
	Verdict Verdict  `json:"verdict"`
	Text    string   `json:"text"`              // what is so
	Fix     string   `json:"fix,omitempty"`     // what to do about it; "" when Text says it, or nothing is to be done
	Details []string `json:"details,omitempty"` // such as the end of a traceback
}
