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
		"agent_storage", "authorization", "channel_connections", "channels", "checkpointer", "database", "dedupe_storage", "extensions", "llm_call", "log_level", "logging",
		"mcp_tasks", "plugins", "run_events", "run_ownership", "stream_bridge", "tracing",
	},
	"sandbox": {
		"acquire_timeout", "api_key", "api_url", "auto_start", "base_url", "burst_limit", "container_prefix", "domain", "health_check_skip_seconds", "home_dir", "overflow_policy", "ownership",
		"port", "provisioner_api_key", "provisioner_url", "template", "thread_data_mounts",
	},
	"skills":  {"deferred_discovery", "use"},
	"uploads": {"pdf_converter"},
	"memory": {
		"consolidation_enabled", "consolidation_max_groups_per_cycle", "consolidation_max_sources", "consolidation_min_facts", "guaranteed_categories", "guaranteed_token_budget",
		"model_name", "staleness_age_days", "staleness_max_extension_days", "staleness_max_lifetime_multiplier", "staleness_max_removals_per_cycle", "staleness_min_candidates",
		"staleness_protected_categories", "staleness_review_enabled", "storage_class", "token_counting",
	},
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

// unknownKeys returns the keys of a document that a value of type t is read from, and that neither t has nor DeerFlow.
func unknownKeys(n ast.Node, t reflect.Type, path string) (found []unknownKey) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		return unknownKeys(n.Value, t, path)
	case *ast.TagNode:
		return unknownKeys(n.Value, t, path)
	case *ast.SequenceNode:
		if t.Kind() == reflect.Slice {
			for _, item := range n.Values {
				found = append(found, unknownKeys(item, t.Elem(), path)...)
			}
		}
	case *ast.MappingValueNode:
		return unknownIn(n, t, path)
	case *ast.MappingNode:
		for _, one := range n.Values {
			found = append(found, unknownIn(one, t, path)...)
		}
	}
	return found
}

func unknownIn(n *ast.MappingValueNode, t reflect.Type, path string) []unknownKey {
	if n.Key.IsMergeKey() {
		return unknownKeys(n.Value, t, path)
	}
	at := n.Key.GetToken()
	below := strings.TrimPrefix(path+"."+at.Value, ".")
	switch t.Kind() {
	case reflect.Slice: // one item may be written without its list
		return unknownIn(n, t.Elem(), path)
	case reflect.Map:
		return unknownKeys(n.Value, t.Elem(), below)
	case reflect.Struct:
	default:
		return nil
	}
	known := slices.Clone(elsewhere[path])
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("yaml")
		if name == at.Value {
			return unknownKeys(n.Value, field.Type, below)
		}
		if name != "-" {
			known = append(known, name)
		}
	}
	if slices.Contains(known, at.Value) || slices.Contains(open, path) {
		return nil
	}
	return []unknownKey{{path: below, line: at.Position.Line, near: typo.Meant(at.Value, known)}}
}
