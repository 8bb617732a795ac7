#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# hack/release.sh VERSION: check, write version and changelog, commit, tag, and build the tarball. Pushes and uploads nothing.
# With DRY_RUN=1 all of it happens in a copy, which is removed, and the importer is not asked.

source "$(dirname "$0")/common.sh"
export PATH=$BIN:$PATH

version=${1:-}
tag=v$version
[[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] || die "usage: make release VERSION=x.y.z"
[ -z "$(git status --porcelain)" ] || die "there are changes that are not committed: $(git status --porcelain | head -n 3)"
! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || die "the tag $tag exists"
placeholders=$(grep -nE '^(repository|documentation|homepage|issues):.*(example\.(org|com)|CHANGE)' galaxy.yml || true)
[ -z "$placeholders" ] || die "replace the placeholders in galaxy.yml first, and run make docs: $placeholders"
grep -q '^documentation: .*/docs/index\.md$' galaxy.yml || die "documentation in galaxy.yml is not the address of docs/index.md, from which the links of README.md are made"

if [ -n "${DRY_RUN:-}" ]; then
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  git clone --quiet --no-hardlinks . "$copy/checkout"
  ln -s "$VENV" "$copy/checkout/.venv"
  git -C "$copy/checkout" config user.name release
  git -C "$copy/checkout" config user.email release@example.com
  echo "dry run: in a copy"
  DRY_RUN='' RELEASE_IN_COPY=1 "$copy/checkout/hack/release.sh" "$version"
  echo "dry run: nothing was changed here"
  exit
fi

fragments=$(find changelogs/fragments -name '*.y*ml' | wc -l)
if python hack/release_notes.py has "$version"; then
  [ "$fragments" = 0 ] || die "the changelog has $version already, and there are $fragments fragments: fold them into it, or delete them"
else
  [ "$fragments" != 0 ] || die "there is no fragment in changelogs/fragments: nothing has changed"
  grep -lq '^release_summary:' changelogs/fragments/*.y*ml || die "no fragment has a release_summary"
  python hack/release_notes.py allows "$version"
fi

newer=$(git grep -nE 'version_added: *"?[0-9]' -- plugins roles extensions | python hack/release_notes.py newer "$version")
[ -z "$newer" ] || die "version_added is later than $version: $newer"

# The places that name the version.
old=$(sed -n 's/^version: //p' galaxy.yml)
sed -i "s/^version: .*/version: $version/" galaxy.yml
sed -i "s/qemu_scheduler-proxmox-${old//./\\.}\.tar\.gz/qemu_scheduler-proxmox-$version.tar.gz/g" execution-environment.yml
# Also for a version that the changelog has already: what was added since belongs to it, and its date is that of the release.
# Outside of the checkout: antsibull-changelog would copy all that is here, .venv included, or what git knows of build/.
elsewhere=$(mktemp -d)
source_copy=$elsewhere/$COLLECTION
copy_checkout "$source_copy"
(cd "$source_copy" && ANSIBLE_COLLECTIONS_PATH=$elsewhere antsibull-changelog release --version "$version" --update-existing --reload-plugins) >/dev/null
rm -rf changelogs
cp -r "$source_copy/changelogs" "$source_copy/CHANGELOG.md" .
rm -rf changelogs/.plugin-cache.yaml "$elsewhere"
python hack/generate_docs.py >/dev/null
python hack/generate_schemas.py >/dev/null
[ -n "${RELEASE_IN_COPY:-}" ] || { hack/lint.sh && hack/importer.sh; }

git add --all changelogs CHANGELOG.md galaxy.yml execution-environment.yml docs README.md
git diff --cached --quiet || git commit --quiet --message "Release $version"
git tag --annotate "$tag" --message "qemu_scheduler.proxmox $version"
rm -f build/qemu_scheduler-proxmox-*.tar.gz
hack/build.sh
tarball=build/qemu_scheduler-proxmox-$version.tar.gz
[ -e "$tarball" ] || die "$tarball was not built"

cat <<END
$tag is ready. Look at it (git show $tag), then:
  git push origin HEAD $tag
  ansible-galaxy collection publish $tarball --token ...
  attach $tarball to the release of the repository, with the section $tag of CHANGELOG.md
END
