package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The heading of a setting in --help is the name of the part of Config that it sets.
func TestGroupsAreThePartsOfConfig(t *testing.T) {
	t.Parallel()
	values := []string{
		"7", "77", "7s", "7h", "true", "1", "serve", "debug", "normal", "off", "127.0.0.7", "http://127.0.0.1:7", "https://127.0.0.1:7", "postgres://a@b/c", "redis://127.0.0.1:7",
		"pass", "upstream", "7MB", "64MB", "g=7", "name", "/name", "http://a.example", "10.0.0.0/8", "a.example",
	}
	for _, s := range Settings() {
		changed := ""
		for _, value := range values {
			var before, after Config
			if s.set(&after, value) != nil || reflect.DeepEqual(before, after) {
				continue
			}
			a, b := reflect.ValueOf(before), reflect.ValueOf(after)
			for i := range a.NumField() {
				if a.Type().Field(i).IsExported() && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
					changed = a.Type().Field(i).Name
				}
			}
			break
		}
		require.NotEmpty(t, changed, "%s takes none of the values", s.Flag)
		if !slices.Contains(Groups(), changed) {
			changed = "Server" // what has no heading of its own
		}
		require.Equal(t, changed, s.Group(), "%s", s.Flag)
	}
}

// What completion offers for a setting is accepted, and anything else refused with these words.
func TestValuesOfSettings(t *testing.T) {
	t.Parallel()
	choices := 0
	for _, s := range Settings() {
		if s.Values == nil {
			continue
		}
		choices++
		for _, value := range s.Values {
			require.NoError(t, s.set(&Config{}, value), "--%s %s", s.Flag, value)
			require.NoError(t, s.set(&Config{}, strings.ToUpper(value)), "--%s %s", s.Flag, value)
		}
		require.EqualError(t, s.set(&Config{}, "other"), "write "+orList(s.Values))
	}
	require.Equal(t, 4, choices)
}
