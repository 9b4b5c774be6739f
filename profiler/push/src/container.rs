//! In which container a process runs, as far as the kernel's files say it.

/// Letters of an id: SHA-256 in hexadecimal, as Docker, containerd, CRI-O and Podman give them.
const ID: usize = 64;

/// The id of the container of this process (`None`: of uu's own); `None`: it is in none, or it cannot be known.
pub fn id(pid: Option<u32>) -> Option<String> {
    let folder = pid.map_or_else(|| "/proc/self".to_owned(), |pid| format!("/proc/{pid}"));
    let read = |file: &str| {
        std::fs::read(format!("{folder}/{file}")).map(|text| String::from_utf8_lossy(&text).into_owned()).ok()
    };
    read("cgroup").as_deref().and_then(of_cgroup).or_else(|| {
        // In a cgroup namespace of its own, a process sees no more than `/`.
        read("mountinfo").as_deref().and_then(of_mounts)
    })
}

/// By the names of control groups, [cgroups(7)](https://man7.org/linux/man-pages/man7/cgroups.7.html): `/docker/ID`,
/// `/system.slice/docker-ID.scope`, `/kubepods/pod…/ID`, `/…/cri-containerd-ID.scope`,
/// `/…/libpod-ID.scope/container`.
fn of_cgroup(text: &str) -> Option<String> {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.flat_map(|path| path.rsplit('/')).find_map(|name| {
        let name = name.strip_suffix(".scope").unwrap_or(name);
        let name = name.rsplit(['-', ':']).next().unwrap_or_default();
        is_id(name).then(|| name.to_owned())
    })
}

/// By the files that a runtime mounts into a container, such as `/etc/hostname`: they lie in `…/containers/ID/`. (In
/// `…/sandboxes/ID/`, as Kubernetes has it, the id is that of the pod.)
fn of_mounts(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        let mut names = root.split("containers/").skip(1).filter_map(|rest| rest.split('/').next());
        names.find(|name| place.starts_with("/etc/") && is_id(name)).map(str::to_owned)
    })
}

fn is_id(name: &str) -> bool {
    name.len() == ID && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_control_groups() {
        let id = "3726184226f5d3147c25fdeab5b60097e378e8a720503a5e19ecfdf29f869860";
        for path in [
            format!("13:cpu:/\n0::/docker/{id}"),
            format!("0::/system.slice/docker-{id}.scope"),
            format!("11:memory:/kubepods/besteffort/pod72881eb0-15bd-4dfe-a1b4-0f4bd9d7c4c5/{id}"),
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-{id}.scope"
            ),
            format!("1:name=systemd:/kubepods/pod1/k8s.io:{id}"),
            format!("0::/machine.slice/libpod-{id}.scope/container"),
        ] {
            assert_eq!(of_cgroup(&path).as_deref(), Some(id), "{path}");
        }
        for path in ["", "0::/", "0::/user.slice/user-1000.slice/session-2.scope", "0::/docker/3726184226f5"] {
            assert_eq!(of_cgroup(path), None, "{path}");
        }
    }

    #[test]
    fn containers_are_known_by_what_is_mounted() {
        let id = "dc579f8a8319c8cf7d38e1adf263bc08d23ebc2e1a5d8b1c9c9d7d6e5f4a3b2c";
        let line = |root: &str, place: &str| {
            format!(
                "473 456 254:1 {root} {place} rw,relatime - ext4 /dev/vda1 rw\n474 456 0:5 / /proc rw - proc proc rw"
            )
        };
        for root in [
            format!("/docker/containers/{id}/hostname"),
            format!("/var/lib/containers/storage/overlay-containers/{id}/userdata/hostname"),
        ] {
            assert_eq!(of_mounts(&line(&root, "/etc/hostname")).as_deref(), Some(id), "{root}");
            assert_eq!(of_mounts(&line(&root, "/mnt")), None);
        }
        let pod = format!("/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/{id}/hostname");
        assert_eq!(of_mounts(&line(&pod, "/etc/hostname")), None);
    }
}
