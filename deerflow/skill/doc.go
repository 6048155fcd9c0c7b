// Package skill keeps skills: folders with a SKILL.md that explains to an agent how to do something.
//
// Public skills belong to the deployment, custom ones to a user. Archives are judged before anything of them is written, and a model judges
// what an agent would be instructed to do.
package skill
