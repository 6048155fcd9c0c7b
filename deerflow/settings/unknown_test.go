package settings

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/parser"
	"github.com/stretchr/testify/require"
)

// leaf is a key of Settings, and a document in which it is the only one, with %s in its place.
type leaf struct{ section, key, document string }

func leaves(t reflect.Type, section, before, after string) (list []leaf) {
	switch t.Kind() {
	case reflect.Pointer:
		return leaves(t.Elem(), section, before, after)
	case reflect.Slice:
		return leaves(t.Elem(), section, before+"[", "]"+after)
	case reflect.Map:
		return leaves(t.Elem(), strings.TrimPrefix(section+".one", "."), before+"{one: ", "}"+after)
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			key := field.Tag.Get("yaml")
			if key == "" || key == "-" {
				continue
			}
			list = append(list, leaf{section, key, before + "{%s: null}" + after})
			list = append(list, leaves(field.Type, strings.TrimPrefix(section+"."+key, "."), before+"{"+key+": ", "}"+after)...)
		}
	default:
	}
	return list
}

func warningsOf(t *testing.T, document string) []unknownKey {
	t.Helper()
	file, err := parser.ParseBytes([]byte(document), 0)
	require.NoError(t, err, document)
	var found unusedKeys
	found.add(file.Docs[0].Body, reflect.TypeFor[Settings](), "")
	return found.unknown
}

// Of every key that is read, a misspelt one is reported at its place with the right one, and the key itself is not.
func TestEveryMisspeltKeyIsReported(t *testing.T) {
	t.Parallel()
	all := leaves(reflect.TypeFor[Settings](), "", "", "")
	require.Greater(t, len(all), 150)
	for _, l := range all {
		require.Empty(t, warningsOf(t, strings.Replace(l.document, "%s", l.key, 1)), l)
		misspelt := l.key[:1] + "x" + l.key[1:]
		found := warningsOf(t, strings.Replace(l.document, "%s", misspelt, 1))
		if slices.Contains(open, l.section) {
			require.Empty(t, found, l)
			continue
		}
		require.Len(t, found, 1, l)
		require.Equal(t, strings.TrimPrefix(l.section+"."+misspelt, "."), found[0].path)
		require.NotEmpty(t, found[0].near, l)
		if len(l.key) > 5 {
			require.Equal(t, l.key, found[0].near)
		}
	}
}

// Keys of DeerFlow that have no effect here are no mistakes, and may have anything below them.
func TestUnusedKeysOfDeerFlow(t *testing.T) {
	t.Parallel()
	for section, keys := range elsewhere {
		for _, key := range keys {
			document := key + ": {anything: {at: all}}"
			if section != "" {
				document = section + ": {" + document + "}"
			}
			require.Empty(t, warningsOf(t, document), document)
			s, err := Parse([]byte(document), nil)
			require.NoError(t, err)
			require.Equal(t, []string{strings.TrimPrefix(section+"."+key, ".")}, s.Unused)
		}
	}
}

// Roles that nothing would enforce are refused.
func TestAuthorizationIsRefused(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("authorization: {enabled: true, provider: {use: 'deerflow.authz.rbac:RbacAuthorizationProvider'}}"), nil)
	require.ErrorContains(t, err, "authorization.enabled is true, and this server enforces no roles")
	_, err = Parse([]byte("authorization: {enabled: false, default_role: user}"), nil)
	require.NoError(t, err)
}

func TestUnknownKeysInTheirForms(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"uplaods: {max_files: 1}":                                 `line 1: uplaods: unknown key, which has no effect; did you mean "uploads"?`,
		"\nmemory:\n  enable: true":                               `line 3: memory.enable: unknown key, which has no effect; did you mean "enabled"?`,
		"token_budget: {max_token: 5}":                            `line 1: token_budget.max_token: unknown key, which has no effect; did you mean "max_tokens"?`,
		"modles: []":                                              `line 1: modles: unknown key, which has no effect; did you mean "models"?`,
		"whatever: 1":                                             `line 1: whatever: unknown key, which has no effect`,
		"summarization: {trigger: {typ: tokens}}":                 `line 1: summarization.trigger.typ: unknown key, which has no effect; did you mean "type"?`,
		"x: &a {enable: true}\nmemory: *a":                        `line 1: x: unknown key, which has no effect`,
		"memory: &a {enable: true}":                               `line 1: memory.enable: unknown key, which has no effect; did you mean "enabled"?`,
		"memory: {<<: {enable: true}}":                            `line 1: memory.enable: unknown key, which has no effect; did you mean "enabled"?`,
		"subagents: {custom_agents: {mine: {tool: [bash]}}}":      `line 1: subagents.custom_agents.mine.tool: unknown key, which has no effect; did you mean "tools"?`,
		"guardrails: {provider: {config: {denied_tool: [ls]}}}":   `line 1: guardrails.provider.config.denied_tool: unknown key, which has no effect; did you mean "denied_tools"?`,
		"models: [{name: m, top_p: 1}]\ntools: [{name: x, y: 1}]": "",
		"memory: 5": "", "memory: [a]": "", "[]": "", "5": "",
	} {
		var got []string
		for _, u := range warningsOf(t, document) {
			got = append(got, u.String())
		}
		require.Equal(t, want, strings.Join(got, "\n"), document)
	}
}

// With a key that is not known, guardrails are refused, unless it is for a guard that is not used or is a service.
func TestMisspeltGuardrails(t *testing.T) {
	t.Parallel()
	for document, refused := range map[string]string{
		"guardrails: {enabled: true, provider: {use: 'b:AllowlistProvider', config: {denied_tool: [bash]}}}":  "guardrails.provider.config.denied_tool",
		"guardrails: {enabled: true, provider: {use: 'b:AllowlistProvider', confg: {denied_tools: [bash]}}}":  "guardrails.provider.confg",
		"guardrails: {enabld: true, provider: {use: 'b:AllowlistProvider', config: {denied_tools: [bash]}}}":  "guardrails.enabld",
		"guardrails: {enabled: true, provider: {use: 'b:AllowlistProvider', config: {denied_tools: [bash]}}}": "",
		"guardrails: {enabled: false, provider: {use: 'my:Guard', config: {mine: 1}}}":                        "",
		"guardrails: {enabled: true, provider: {use: 'my:Guard', config: {url: 'http://x', mine: 1}}}":        "",
	} {
		s, err := Parse([]byte(document), nil)
		require.NoError(t, err)
		if err := s.Guardrails.Check(); refused == "" {
			require.NoError(t, err, document)
		} else {
			require.ErrorContains(t, err, refused+": unknown key, which has no effect; did you mean", document)
		}
	}
}

// Values of a wrong kind are reported in words of YAML, with their place: not with types of this program.
func TestValuesOfWrongKinds(t *testing.T) {
	t.Parallel()
	refused := 0
	for _, l := range leaves(reflect.TypeFor[Settings](), "", "", "") {
		for _, value := range []string{"text", "[a]", "{a: b}", "[[a]]", "[{a: {b: c}}]", "true", "5.5", "-5", "99999999999999999999999", "!!binary x", "2001-01-01"} {
			document := strings.Replace(l.document, "%s: null", l.key+": "+value, 1)
			_, err := Parse([]byte(document), func(string) (string, bool) { return "", false })
			if err == nil {
				continue
			}
			refused++
			for _, word := range []string{"Go ", "settings.", "struct", "unmarshal", "float64", "interface", "[]string", "map["} {
				require.NotContains(t, err.Error(), word, document)
			}
		}
	}
	require.Greater(t, refused, 500)
	_, err := Parse([]byte("uploads:\n  max_files: many\n"), nil)
	require.ErrorContains(t, err, "[2:14] a whole number is needed here")
}
