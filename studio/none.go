//go:build nostudio

package studio

import "embed"

// Built reports whether this program has the pages. The build tag nostudio leaves them out.
const Built = false

var files embed.FS
