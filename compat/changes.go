package compat

import (
	"understudy/id"
	"understudy/internal/jsonobj"
)

// ChangesEvent is the name of the events that report which threads and runs changed.
const ChangesEvent = "changes"

// AppendChanges appends the data of an event: {"threads": [IDs], "runs": [IDs]}, or with all {"all": true}.
func AppendChanges(dst []byte, threads []id.Thread, runs []id.Run, all bool) []byte {
	if all {
		return append(dst, `{"all":true}`...)
	}
	r := newRow(dst, nil)
	r.key("threads")
	r.dst = AppendList(r.dst, threads, appendID)
	r.key("runs")
	r.dst = AppendList(r.dst, runs, appendID)
	return r.end()
}

func appendID[T ~string](dst []byte, v T) []byte { return jsonobj.AppendText(dst, string(v)) }
