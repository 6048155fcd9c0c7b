package overlay

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/internal/jsonscan"
)

// removedByTasks returns the ids removed by finished tasks of a snapshot. The task `__start__` applies the client's input, so its
// removals are the client's.
func removedByTasks(s *checkpointer.Snapshot) map[string]bool {
	ids := map[string]bool{}
	for _, t := range s.Tasks {
		if t.Name != "__start__" && bytes.Contains(t.Result, []byte(`"remove"`)) {
			removals(ids, gjson.ParseBytes(t.Result), 0)
		}
	}
	return ids
}

// Removals returns the ids of remove messages anywhere in JSON: as messages, in the constructor form of LangChain's
// serialisation, alone or in lists.
func Removals(in ...json.RawMessage) map[string]bool {
	ids := map[string]bool{}
	for _, one := range in {
		if bytes.Contains(one, []byte("remove")) || bytes.Contains(one, []byte("RemoveMessage")) {
			removals(ids, gjson.ParseBytes(one), 0)
		}
	}
	return ids
}

func removals(into map[string]bool, v gjson.Result, depth int) {
	if depth > 32 || !v.IsObject() && !v.IsArray() {
		return
	}
	if v.IsObject() {
		if mid, ok := removal([]byte(v.Raw)); ok {
			into[mid] = true
			return
		}
	}
	v.ForEach(func(_, e gjson.Result) bool {
		removals(into, e, depth+1)
		return true
	})
}

// removal returns the id that a message removes; ok is false when it is not a remove message.
func removal(message []byte) (mid string, ok bool) {
	if jsonscan.Text(message, "type") == "constructor" {
		if !strings.HasSuffix(gjson.GetBytes(message, "id.@reverse.0").String(), "RemoveMessage") {
			return "", false
		}
		return jsonscan.Text(jsonscan.Raw(message, "kwargs"), "id"), true
	}
	if jsonscan.Text(message, "type") != "remove" && jsonscan.Text(message, "role") != "remove" {
		return "", false
	}
	return jsonscan.Text(message, "id"), true
}
