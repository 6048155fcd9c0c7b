package settings

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Options are what goes with each request to the model, in addition to the fields of Model: with thinking on or off, and a reasoning effort ("": the model's own). They
// are the parameters of LangChain's clients: members of the request, those of extra_body and model_kwargs among them.
func (m *Model) Options(thinking bool, effort string) (map[string]json.RawMessage, error) {
	all := merged(m.ofResponses(), m.ModelKwargs, m.ExtraBody)
	if m.Effort != "" {
		all["reasoning_effort"] = m.Effort
	}
	if thinking && m.Thinking {
		all = merged(all, m.whenOn())
	} else {
		all = merged(all, m.whenOff())
	}
	if effort != "" {
		all["reasoning_effort"] = effort
	}
	if !m.ReasoningEffort {
		delete(all, "reasoning_effort")
	}
	out := make(map[string]json.RawMessage, len(all))
	for name, value := range all {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("model %s: %s: %w", m.Name, name, err)
		}
		out[name] = raw
	}
	return out, nil
}

// whenOn are the parameters with which the model thinks.
func (m *Model) whenOn() map[string]any {
	on := flat(m.WhenOn)
	if m.ThinkingOptions != nil {
		on = merged(on, map[string]any{"thinking": m.ThinkingOptions})
	}
	return on
}

// whenOff are the parameters with which it does not: those that are configured, else those that undo whenOn for the providers that are known.
func (m *Model) whenOff() map[string]any {
	if m.WhenOff != nil {
		return flat(m.WhenOff)
	}
	body, _ := m.WhenOn["extra_body"].(map[string]any)
	if t, ok := body["thinking"].(map[string]any); ok && t["type"] != nil {
		return map[string]any{"thinking": map[string]any{"type": "disabled"}, "reasoning_effort": "minimal"}
	}
	if t, ok := body["chat_template_kwargs"].(map[string]any); ok { // vLLM
		off := map[string]any{}
		for name := range t {
			if name == "thinking" || name == "enable_thinking" {
				off[name] = false
			}
		}
		return map[string]any{"chat_template_kwargs": off}
	}
	if t, ok := m.whenOn()["thinking"].(map[string]any); ok && t["type"] != nil {
		return map[string]any{"thinking": map[string]any{"type": "disabled"}}
	}
	return nil
}

// flat returns parameters as members of the request.
func flat(given map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range given {
		if inner, ok := value.(map[string]any); ok && (name == "extra_body" || name == "model_kwargs") {
			out = merged(out, inner)
		} else {
			out[name] = value
		}
	}
	return out
}

// merged returns an object with the members of others, the later ones over the earlier, and objects within them merged too.
func merged(list ...map[string]any) map[string]any {
	out := map[string]any{}
	for _, one := range list {
		for name, value := range one {
			have, isObject := out[name].(map[string]any)
			if more, ok := value.(map[string]any); ok && isObject {
				out[name] = merged(have, more)
			} else {
				out[name] = value
			}
		}
	}
	return maps.Clone(out)
}
