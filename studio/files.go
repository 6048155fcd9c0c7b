//go:build !nostudio

package studio

import "embed"

// Built reports whether this program has the pages.
const Built = true

//go:embed dist
var files embed.FS
