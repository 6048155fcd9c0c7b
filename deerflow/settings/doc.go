// Package settings reads DeerFlow's config.yaml, and reads and writes its extensions_config.json.
//
// Both are read again when they change, so that edits count from the next request on. Keys that belong to parts of DeerFlow that are not served
// here are ignored, and the file is never written.
package settings
