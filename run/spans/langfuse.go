package spans

import (
	"cmp"
	"strings"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/attribute"
)

// Langfuse names the traces of runs in Langfuse as DeerFlow's own tracing does.
type Langfuse struct {
	Environment string // of the deployment; "": not said
}

// labels returns the name and the tags of a run's trace. What the metadata of the run says (langfuse_trace_name, langfuse_session_id, langfuse_user_id, langfuse_tags)
// wins.
func (l *Langfuse) labels(o *Options) []attribute.KeyValue {
	said := func(key string) string { return label(gjson.GetBytes(o.Metadata, "langfuse_"+key)) }
	attrs := []attribute.KeyValue{attribute.String("langfuse.trace.name", cmp.Or(said("trace_name"), o.agent()))}
	for _, key := range []string{"session", "user"} {
		if v := said(key + "_id"); v != "" {
			attrs = append(attrs, attribute.String("langfuse."+key+".id", v))
		}
	}
	var tags []string
	if given := gjson.GetBytes(o.Metadata, "langfuse_tags"); given.IsArray() {
		list := given.Array()
		for _, tag := range list[:min(len(list), maxLabels)] {
			if text := label(tag); text != "" {
				tags = append(tags, text)
			}
		}
	} else {
		for _, tag := range [][2]string{{"env:", l.Environment}, {"model:", o.wish("model_name")}} {
			if tag[1] != "" {
				tags = append(tags, tag[0]+tag[1])
			}
		}
	}
	if len(tags) > 0 {
		attrs = append(attrs, attribute.StringSlice("langfuse.trace.tags", tags))
	}
	return attrs
}

// wish returns a text of the run's context, or else of its configuration.
func (o *Options) wish(key string) string {
	v := gjson.GetBytes(o.Asked, key)
	if !v.Exists() {
		v = gjson.GetBytes(o.Config, "configurable."+key)
	}
	return label(v)
}

// A label is a short text that a client chooses.
const maxLabel, maxLabels = 200, 50

// label returns a text, cut to maxLabel; "" for anything else, which may be content.
func label(v gjson.Result) string {
	if v.Type != gjson.String {
		return ""
	}
	return strings.ToValidUTF8(v.Str[:min(len(v.Str), maxLabel)], "")
}

// agent returns the name of the agent of the run: one of a user's, or its graph.
func (o *Options) agent() string { return cmp.Or(o.wish("agent_name"), o.Graph) }
