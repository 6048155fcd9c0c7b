package checkpointer

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"
)

// HeadOfRows is HeadOf for a checkpoint without description whose graph is not there: as far as its writes show it.
func (s *Snapshots) HeadOfRows(t *Tuple) HeadInfo { return s.headInfo(t, tasksOfWrites(t)) }

// tasksOfWrites returns the tasks that have written something, in the order of their writes: what they ask, how they failed, or what they returned. Tasks
// without a write are known to the graph only.
func tasksOfWrites(t *Tuple) (tasks []taskInfo) {
	at := map[string]int{}
	for i := range t.Writes {
		w := &t.Writes[i]
		if w.TaskID == nullTask {
			continue
		}
		n, known := at[w.TaskID]
		if !known {
			n = len(tasks)
			at[w.TaskID] = n
			tasks = append(tasks, taskInfo{ID: w.TaskID, Path: json.RawMessage("[]")})
		}
		if tasks[n].Name == "" {
			if name, ok := strings.CutPrefix(w.Path, "~__pregel_pull, "); ok && !strings.Contains(name, ", ") {
				tasks[n].Name = name
				tasks[n].Path = PullPath(name)
			}
		}
	}
	// LangGraph's SQLite saver stores no paths.
	if waiting := triggered(t); len(tasks) == 1 && tasks[0].Name == "" && len(waiting) == 1 {
		tasks[0].Name, tasks[0].Path = waiting[0], PullPath(waiting[0])
	}
	return tasks
}

// PullPath returns the path of the task of a node that an edge leads to.
func PullPath(name string) json.RawMessage {
	path, _ := json.Marshal([]string{"__pregel_pull", name}) // text has JSON
	return path
}

// triggered returns the nodes that edges lead to.
func triggered(t *Tuple) (nodes []string) {
	gjson.GetBytes(t.Data, "channel_values").ForEach(func(channel, _ gjson.Result) bool {
		if node, ok := strings.CutPrefix(channel.String(), "branch:to:"); ok {
			nodes = append(nodes, node)
		}
		return true
	})
	return nodes
}
