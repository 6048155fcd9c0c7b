package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"understudy/internal/typo"
)

// elsewhere are keys of DeerFlow that have no effect here, by the section that they are in. Sections among them may have any keys.
var elsewhere = map[string][]string{
	"": {
		"agent_storage", "channel_connections", "channels", "checkpointer", "database", "dedupe_storage", "llm_call", "log_level", "logging",
		"mcp_tasks", "plugins", "run_events", "run_ownership", "stream_bridge", "tracing",
	},
	"sandbox": {
		"acquire_timeout", "api_key", "api_url", "auto_start", "base_url", "burst_limit", "container_prefix", "domain", "health_check_skip_seconds", "home_dir", "overflow_policy", "ownership",
		"port", "provisioner_api_key", "provisioner_url", "template", "thread_data_mounts",
	},
	"extensions": {"mcpServers", "mcp_servers", "skills"},
	"skills":     {"deferred_discovery", "use"},
	"uploads":    {"pdf_converter"},
	"memory": {
		"consolidation_enabled", "consolidation_max_groups_per_cycle", "consolidation_max_sources", "consolidation_min_facts", "guaranteed_categories", "guaranteed_token_budget",
		"model_name", "staleness_age_days", "staleness_max_extension_days", "staleness_max_lifetime_multiplier", "staleness_max_removals_per_cycle", "staleness_min_candidates",
		"staleness_protected_categories", "staleness_review_enabled", "storage_class", "token_counting",
	},
	"authorization":   {"default_role", "fail_closed", "provider"},
	"scheduler":       {"lease_seconds", "multi_instance", "poll_interval_seconds"},
	"skill_evolution": {"security_fail_closed"},
	"summarization":   {"summary_prompt", "trim_tokens_to_summarize"},
	"title":           {"prompt_template"},
	"loop_detection":  {"max_tracked_threads", "window_size"},
	"tool_output":     {"fallback_head_chars", "fallback_max_chars", "fallback_tail_chars", "storage_subdir", "tool_overrides"},
	"tool_progress":   {"max_tracked_threads"},
	"tool_search":     {"auto_promote_top_k"},
}

// open are sections whose further keys are for what their class names: a client of models, a tool, a storage of memories.
var open = []string{"models", "tools", "tool_groups", "memory.backend_config"}

// unknownKey is a key that nothing reads.
type unknownKey struct {
	path string // such as sandbox.confin
	line int
	near string // the key that was likely meant; ""
}

func (u unknownKey) String() string {
	text := fmt.Sprintf("line %d: %s: unknown key, which has no effect", u.line, u.path)
	if u.near != "" {
		text += fmt.Sprintf("; did you mean %q?", u.near)
	}
	return text
}

// unusedKeys are the keys of a document that have no effect.
type unusedKeys struct {
	unknown []unknownKey
	theirs  []string // paths of those that DeerFlow has
}

// add notes the keys that are not read into a value of type t.
func (u *unusedKeys) add(n ast.Node, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		u.add(n.Value, t, path)
	case *ast.TagNode:
		u.add(n.Value, t, path)
	case *ast.SequenceNode:
		if t.Kind() == reflect.Slice {
			for _, item := range n.Values {
				u.add(item, t.Elem(), path)
			}
		}
	case *ast.MappingValueNode:
		u.addOne(n, t, path)
	case *ast.MappingNode:
		for _, one := range n.Values {
			u.addOne(one, t, path)
		}
	}
}

func (u *unusedKeys) addOne(n *ast.MappingValueNode, t reflect.Type, path string) {
	if n.Key.IsMergeKey() {
		u.add(n.Value, t, path)
		return
	}
	at := n.Key.GetToken()
	below := strings.TrimPrefix(path+"."+at.Value, ".")
	switch t.Kind() {
	case reflect.Slice: // one item may be written without its list
		u.addOne(n, t.Elem(), path)
		return
	case reflect.Map:
		u.add(n.Value, t.Elem(), below)
		return
	case reflect.Struct:
	default:
		return
	}
	if slices.Contains(elsewhere[path], at.Value) {
		u.theirs = append(u.theirs, below)
		return
	}
	known := slices.Clone(elsewhere[path])
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("yaml")
		if name == at.Value {
			u.add(n.Value, field.Type, below)
			return
		}
		if name != "-" {
			known = append(known, name)
		}
	}
	if !slices.Contains(open, path) {
		u.unknown = append(u.unknown, unknownKey{path: below, line: at.Position.Line, near: typo.Meant(at.Value, known)})
	}
}

// Classes returns the names in a list of classes in Python: paths, or objects with a path and arguments.
func Classes(list []any) (names []string) {
	for _, one := range list {
		name, _ := one.(string)
		if o, ok := one.(map[string]any); ok {
			for _, key := range []string{"class", "use"} {
				if text, ok := o[key].(string); ok && name == "" {
					name = text
				}
			}
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}
