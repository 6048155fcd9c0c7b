package tool

import (
	"maps"
	"slices"

	"understudy/graph/pregel"
)

// State are the keys of the state that tools write, with how updates are merged.
func State() map[string]pregel.Channel {
	return map[string]pregel.Channel{
		"sandbox":        pregel.LastValue(),
		"uploaded_files": pregel.LastValue(),
		"artifacts":      pregel.Reducer(addArtifacts),
		"viewed_images":  pregel.Reducer(addImages),
	}
}

// addArtifacts adds paths that are not there yet.
func addArtifacts(current, update []string) []string {
	out, seen := slices.Clone(current), make(map[string]bool, len(current))
	for _, p := range current {
		seen[p] = true
	}
	for _, p := range update {
		if !seen[p] {
			seen[p], out = true, append(out, p)
		}
	}
	return out
}

// addImages merges images by path; an empty update removes all.
func addImages(current, update map[string]any) map[string]any {
	if len(update) == 0 {
		return map[string]any{}
	}
	out := maps.Clone(current)
	if out == nil {
		out = map[string]any{}
	}
	maps.Copy(out, update)
	return out
}
